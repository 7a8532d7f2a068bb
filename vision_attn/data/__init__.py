"""Named data sets as arrays, nested subsets of them, batched augmentation, a LightningDataModule."""
