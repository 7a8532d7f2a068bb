"""The command line, a module for the commands of each part. Heavy imports wait until needed."""
