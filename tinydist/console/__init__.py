"""Terminal and notebook output: progress messages, and command lines formatted for the current shell."""
