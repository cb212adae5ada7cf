"""What the models are worth: metrics, intervals, floors, and probes of what they use."""
