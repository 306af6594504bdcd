"""The candidates that the portraits' tests draw."""

from tests.portraits.conftest import drawn, pools

__all__ = ["drawn", "pools"]
