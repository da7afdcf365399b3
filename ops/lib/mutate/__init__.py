"""Edits that must not go unnoticed: whether each rule of the contract is held by a test that would fail without it."""
