"""Workers that turn prompts into pictures: policy and bookkeeping here, inference in a child process."""
