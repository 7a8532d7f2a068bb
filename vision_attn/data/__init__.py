"""Data sets as arrays, nested subsets, batched augmentation, a LightningDataModule."""
