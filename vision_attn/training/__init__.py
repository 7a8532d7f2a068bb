"""Training one model through Lightning: the module, and a configured run that gives one result."""
