"""What tests of several parts share; its folder is where they import `made_study` from."""
