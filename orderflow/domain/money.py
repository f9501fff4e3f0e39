"""Money: whole minor units and an ISO 4217 code, never a float (M01).

The table is ISO 4217 List One as published on 2026-01-01. Left out, because nobody's card is charged in them: funds
codes (`CLF`, `USN`, ...), other units of account (`UYW`, `XAD`), metals (`XAU`), test and "no currency" codes (`XXX`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from orderflow.domain.strict_json import MAX_INTEGER

_NO_DECIMALS: Final = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_TWO_DECIMALS: Final = (
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC CUP"
    " CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES"
    " KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK"
    " NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB"
    " TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG"
)
_THREE_DECIMALS: Final = "BHD IQD JOD KWD LYD OMR TND"

EXPONENTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(_NO_DECIMALS.split(), 0),
        **dict.fromkeys(_TWO_DECIMALS.split(), 2),
        **dict.fromkeys(_THREE_DECIMALS.split(), 3),
    }
)
"""How many decimals each currency has: 0 for `JPY`, 2 for `USD`, 3 for `KWD`."""


def _known(code: str) -> str:
    if code not in EXPONENTS:
        raise ValueError("must be an active ISO 4217 currency code in capitals, such as EUR")
    return code


Currency = Annotated[str, Field(strict=True, json_schema_extra={"enum": sorted(EXPONENTS)}), AfterValidator(_known)]
"""An active ISO 4217 code in capitals."""

AmountMinor = Annotated[int, Field(strict=True, ge=0, le=MAX_INTEGER)]
"""An amount in minor units (cents for EUR, yen for JPY), 0 to 2^53-1."""


class Money(BaseModel):
    """An amount in minor units of a currency. `str()` is for people: `USD 10.99`, `JPY 500`, `KWD 1.234`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    amount_minor: AmountMinor
    currency: Currency

    @property
    def exponent(self) -> int:
        """The number of decimals of the currency."""
        return EXPONENTS[self.currency]

    def __str__(self) -> str:
        if not self.exponent:
            return f"{self.currency} {self.amount_minor}"
        major, minor = divmod(self.amount_minor, 10**self.exponent)
        return f"{self.currency} {major}.{minor:0{self.exponent}}"
