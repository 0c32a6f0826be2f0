"""What a run looks like to a person, made from its ledger alone."""
