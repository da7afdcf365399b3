"""cohortd: durable rewards for cohorts of sibling rollouts judged against each other."""

__version__ = "0.1.0"
