"""JSON Schema: applied with a bound on the work, adapted, simplified, coerced. Import the module that is meant."""
