"""Units of measurement."""

from __future__ import annotations

# How many of the first unit of its line each unit is.
_UNITS: dict[str, dict[str, float]] = {
    "length": {
        "m": 1,
        "km": 1000,
        "cm": 0.01,
        "mm": 0.001,
        "in": 0.0254,
        "ft": 0.3048,
        "yd": 0.9144,
        "mi": 1609.344,
        "nmi": 1852,
    },
    "mass": {"kg": 1, "g": 0.001, "mg": 1e-6, "t": 1000, "lb": 0.45359237, "oz": 0.028349523125},
    "volume": {
        "l": 1,
        "ml": 0.001,
        "m3": 1000,
        "gal": 3.785411784,
        "qt": 0.946352946,
        "cup": 0.2365882365,
        "floz": 0.0295735295625,
    },
    "area": {"m2": 1, "km2": 1e6, "ha": 1e4, "ft2": 0.09290304, "acre": 4046.8564224},
    "speed": {"m/s": 1, "km/h": 1 / 3.6, "mph": 0.44704, "kn": 1852 / 3600},
    "time": {"s": 1, "min": 60, "h": 3600, "d": 86400, "week": 604800},
    "data": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}

# Names of units, as models often write them, without the s of the plural.
_NAMES = {
    "metre": "m", "meter": "m", "inch": "in", "inche": "in", "foot": "ft", "feet": "ft",
    "yard": "yd", "mile": "mi", "gram": "g", "tonne": "t", "pound": "lb", "lb": "lb",
    "ounce": "oz", "litre": "l", "liter": "l", "gallon": "gal", "quart": "qt", "cup": "cup",
    "hectare": "ha", "acre": "acre", "knot": "kn", "second": "s", "minute": "min",
    "hour": "h", "day": "d", "week": "week", "byte": "B",
    "celsiu": "C", "fahrenheit": "F", "kelvin": "K",
}  # fmt: skip
_PREFIXES = {"kilo": "k", "centi": "c", "milli": "m", "mega": "M", "giga": "G"}

# Degrees of the scale that one kelvin is, and where absolute zero lies on it.
_TEMPERATURES = {"K": (1.0, 0.0), "C": (1.0, -273.15), "F": (1.8, -459.67)}

_KNOWN = {unit for factors in _UNITS.values() for unit in factors} | _TEMPERATURES.keys()


def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a measurement into another unit.

    Units: m km cm mm in ft yd mi nmi, kg g mg t lb oz, l ml m3 gal qt cup floz (US), m2 km2 ha
    ft2 acre, m/s km/h mph kn, s min h d week, B kB MB GB KiB MiB GiB, C F K.

    Args:
        value: How many of the first unit.
        from_unit: The unit that the value has.
        to_unit: The unit to convert to.
    """
    from_unit, to_unit = _symbol(from_unit), _symbol(to_unit)
    if from_unit in _TEMPERATURES and to_unit in _TEMPERATURES:
        result = _temperature(value, from_unit, to_unit)
    else:
        factors = _factors(from_unit, to_unit)
        result = value * factors[from_unit] / factors[to_unit]
    return f"{result:.10g} {to_unit}"


def _symbol(unit: str) -> str:
    """Return the symbol of a unit that is named, such as "km" for "Kilometres"; else the unit."""
    unit = unit.strip().removeprefix("°")
    if unit in _KNOWN:
        return unit
    name = unit.lower().removeprefix("degrees ").removesuffix("s")
    for prefix, short in {"": "", **_PREFIXES}.items():
        rest = _NAMES.get(name[len(prefix) :])
        if name.startswith(prefix) and rest and short + rest in _KNOWN:
            return short + rest
    return unit


def _temperature(value: float, from_unit: str, to_unit: str) -> float:
    size, zero = _TEMPERATURES[from_unit]
    kelvin = (value - zero) / size
    if kelvin < -1e-9:
        raise ValueError("Nothing is colder than absolute zero.")
    size, zero = _TEMPERATURES[to_unit]
    # Rounded, as the difference of such numbers ends in noise.
    return round(kelvin * size + zero, 9)


def _factors(from_unit: str, to_unit: str) -> dict[str, float]:
    for factors in _UNITS.values():
        if from_unit in factors and to_unit in factors:
            return factors
    unknown = [unit for unit in (from_unit, to_unit) if unit not in _KNOWN]
    if unknown:
        raise ValueError(f"There is no unit {unknown[0]!r} here.")
    raise ValueError(f"{from_unit!r} cannot be converted into {to_unit!r}.")
