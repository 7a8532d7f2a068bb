"""The experiment: models against growing subsets of one data set."""
