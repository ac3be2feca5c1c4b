"""Errors a user can cause in the model, one class each. Every message says what is wrong and what to do."""

from __future__ import annotations


class HitboundError(Exception):
    """Base of every error a user can cause; the command line turns it into exit code 2."""


class ConfigurationError(HitboundError):
    """A configuration that no engine could run (sizes that do not divide, an empty pool, ...)."""


class UnsupportedConfiguration(HitboundError):
    """A configuration that engines do run but that this model cannot express yet; refused by name."""


class IllegalAction(HitboundError):
    """An action of a trace that is not possible in the state it meets."""


class PolicyError(HitboundError):
    """A policy file that cannot be imported, lacks a part, or returns a value of the wrong type."""
