"""Keys of clients with limits: allowed models, requests and tokens a minute, a budget.

`account.py` is the arithmetic. A book keeps the accounts for all processes: `sqlite_book.py` for one machine,
`redis_book.py` for several. A `Limiter` leases from it in blocks.
"""
