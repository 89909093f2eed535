"""Apply JSON Schemas with a bound on the work, and match patterns in linear time."""
