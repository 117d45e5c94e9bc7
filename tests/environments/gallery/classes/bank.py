"""Async tools, a dataclass and a Literal as arguments."""

from dataclasses import dataclass
from typing import Literal


@dataclass
class Transfer:
    to: str
    amount: float


class Bank:
    async def reset(self, balance=100.0):
        self.balance = balance

    async def transfer(self, order: Transfer, currency: Literal["EUR", "USD"] = "EUR") -> dict:
        """Transfer money.

        :param order: Recipient and amount.
        :param currency: Currency of the amount.
        """
        self.balance -= order.amount
        return {"to": order.to, "balance": self.balance, "currency": currency}

    async def get_reward(self) -> float:
        return 1.0 if self.balance == 75 else 0.0
