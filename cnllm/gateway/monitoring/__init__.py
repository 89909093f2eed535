"""Show what a gateway does: metrics for Prometheus, the last requests, and a page with them."""
