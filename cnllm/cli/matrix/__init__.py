"""Build the matrix page: one HTML file with every model, what it can do, and the source of each value.

`page.html`, `style.css`, `texts.json` and the scripts are the page. `rows` has what its list shows, `details` what the
page of one model shows, and `page` puts all into one file.
"""
