"""One training loop for every stage, and the losses that each stage gives it."""
