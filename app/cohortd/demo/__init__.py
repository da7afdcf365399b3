"""`cohortd demo`: real-shaped cohorts, a kill in the middle of judging, and the proof that nothing was lost."""
