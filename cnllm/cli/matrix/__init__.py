"""Build the matrix page: one HTML file with every model, what it can do, and the source of each value.

`page.html`, `style.css`, `texts.json` and the scripts are the page. `page.py` has what its list and the page of one
model show, and puts all into one file.
"""
