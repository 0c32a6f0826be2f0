"""WebShop: buy what an instruction asks for (Yao et al., 2022), as a clean-room text engine with its own catalogue."""

from envs.webshop.adapter import WebShop

__all__ = ["WebShop"]
