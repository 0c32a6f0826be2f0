"""Other ecosystems' environments as ours, and ours as theirs; each bridge is imported by who needs it."""
