"""The synthetic world: scenes, pictures, captions, questions. NumPy only."""
