"""Harbor tasks as an environment: shell commands in a sandbox, a verifier's reward at the end."""

from envs.harbor.adapter import Harbor

__all__ = ["Harbor"]
