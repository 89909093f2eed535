"""The steps of one call and of a tool loop, as generators that a client drives."""
