"""Pure functions on tensors, no state."""
