"""Changed copies of the scripts' text, for tests only: a clock that tests set, and counters at every branch."""
