"""Rules of the machine: one file for each kind of caller; a new one is added to `Machine`."""
