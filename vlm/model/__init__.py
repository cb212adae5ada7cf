"""The networks. They import neither data, losses, training nor scenes."""
