"""Tables on disk: the contract between the stages."""
