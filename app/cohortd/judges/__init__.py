"""Talking to judge models: wire formats, endpoints, and the tries and budgets of one comparison."""
