"""Run rows through a vendor's own batch interface: pack them into parts, submit, poll, fetch.

What differs by vendor is data (`batch` in the registry). A part is one job at the vendor. Its intent is on the disk
before it is submitted, with a mark that the job carries: after a crash the job is found, and not submitted again.
"""
