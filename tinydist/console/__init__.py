"""Terminal and notebook output: progress messages, quantities as text, command lines for the current shell."""
