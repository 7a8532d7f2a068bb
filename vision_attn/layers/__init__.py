"""Modules over `ops`: attention over tokens, windows and maps; embeddings, blocks, convolution."""
