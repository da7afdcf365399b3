"""Acceptance against NeMo Gym: its own collector and agent in front of the service, a judge that is no model behind it."""
