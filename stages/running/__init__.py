"""What stages share: how one is run, stopped, kept alone, spread over processes, resumed."""
