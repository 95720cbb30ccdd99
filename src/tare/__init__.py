"""Tare: what does this layer cost me, and can I pay less?"""

__version__ = "0.1.0"
