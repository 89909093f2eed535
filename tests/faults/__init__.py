"""What becomes of a reply when everything goes wrong on the way: whole, cut and told, or a typed error."""
