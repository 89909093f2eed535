"""The registry: files in, models out, and nothing said in them lost, misread or sent astray."""
