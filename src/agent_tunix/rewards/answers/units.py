"""Units of measurement: their names, and whether two of them differ."""

import re

# Names of units, each with its usual name.
UNITS = {
    name: usual
    for usual, names in {
        "m": "meter meters metre metres",
        "cm": "centimeter centimeters centimetre centimetres",
        "mm": "millimeter millimeters millimetre millimetres",
        "dm": "decimeter decimeters decimetre decimetres",
        "km": "kilometer kilometers kilometre kilometres",
        "nm": "nanometer nanometers nanometre nanometres",
        "kg": "kilogram kilograms kgs",
        "g": "gram grams",
        "mg": "milligram milligrams",
        "ton": "tons tonne tonnes t",
        "pound": "pounds lb lbs £ GBP",
        "oz": "ounce ounces",
        "ft": "foot feet",
        "in": "inch inches",
        "yd": "yds yard yards",
        "mi": "mile miles",
        "s": "sec secs second seconds",
        "ms": "millisecond milliseconds",
        "min": "mins minute minutes",
        "h": "hr hrs hour hours",
        "day": "days d",
        "week": "weeks wk wks",
        "month": "months",
        "year": "years yr yrs",
        "cent": "cents ¢",
        "dollar": "dollars $ USD",
        "euro": "euros € EUR",
        "yen": "¥",
        "rupee": "rupees ₹",
        "mL": "ml milliliter milliliters millilitre millilitres",
        "dL": "dl deciliter deciliters decilitre decilitres",
        "L": "l liter liters litre litres",
        "gal": "gallon gallons",
        "cup": "cups",
        "qt": "qts quart quarts",
        "tbsp": "tbsps tablespoon tablespoons",
        "tsp": "tsps teaspoon teaspoons",
        "acre": "acres",
        "ha": "hectare hectares",
        "rpm": "",
        "bpm": "",
        "ppm": "",
        "N": "newton newtons",
        "kN": "kilonewton kilonewtons",
        "lbf": "",
        "hp": "horsepower",
        "J": "joule joules",
        "kJ": "kilojoule kilojoules",
        "eV": "",
        "keV": "",
        "MeV": "",
        "GeV": "",
        "cal": "calorie calories",
        "kcal": "",
        "W": "watt watts",
        "kW": "kilowatt kilowatts",
        "MW": "megawatt megawatts",
        "kWh": "",
        "V": "volt volts",
        "kV": "kilovolt kilovolts",
        "mV": "millivolt millivolts",
        "A": "ampere amperes amp amps",
        "mA": "milliampere milliamperes",
        "Hz": "hertz",
        "kHz": "kilohertz",
        "MHz": "megahertz",
        "GHz": "gigahertz",
        "Pa": "pascal pascals",
        "kPa": "kilopascal kilopascals",
        "MPa": "megapascal megapascals",
        "atm": "atmosphere atmospheres",
        "mol": "mole moles",
        "mmol": "",
        "K": "kelvin kelvins",
        "C": "celsius Celsius",
        "F": "fahrenheit Fahrenheit",
        "°": "degree degrees deg",
        "rad": "radian radians",
        "dB": "decibel decibels",
        "bit": "bits",
        "byte": "bytes",
        "kB": "KB kilobyte kilobytes",
        "MB": "megabyte megabytes",
        "GB": "gigabyte gigabytes",
        "TB": "terabyte terabytes",
        "percent": "percents percentage pct %",
        "am": "AM a.m. A.M.",
        "pm": "PM p.m. P.M.",
        "pt": "pts point points",
        "pc": "pcs piece pieces",
    }.items()
    for name in (usual, *names.split())
}
# Names of units that consist of others.
_COMPOUNDS = {
    "mph": {"mi": 1, "h": -1},
    **{name: {"km": 1, "h": -1} for name in ("kph", "kmh", "kmph")},
    "mpg": {"mi": 1, "gal": -1},
    "fps": {"ft": 1, "s": -1},
    "sqft": {"ft": 2},
    "sqm": {"m": 2},
    "cc": {"cm": 3},
}
_MONEY = frozenset(("dollar", "euro", "pound", "yen", "rupee", "cent"))
_TEMPERATURES = frozenset(("C", "F", "K"))
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3, "²": 2, "³": 3}
_PART = re.compile(
    r"""(?P<over> / | \bper\b | (?<![A-Za-z])an?(?=\s[a-z]{3}) ) | (?P<clock> [AaPp]\.\s?[Mm]\.? )
      | (?P<raised> \^?\s*[{(]?\s*(?P<power>-?\d)\s*[})]? | [²³] )
      | (?P<name> [^\W\d_²³]+ | [°$€£¥₹¢%] ) | [\s·*⋅.(){}\\~-]""",
    re.VERBOSE,
)
_OF = re.compile(r"\sof\s.*", re.DOTALL)

Unit = dict[str, int]


def is_unit(name: str) -> bool:
    """Return True for the name of a known unit."""
    return name in UNITS or name in _COMPOUNDS or (len(name) > 1 and name.lower() in UNITS)


def are_factors(letters: str, *, attached: bool) -> bool:
    """Return True if letters after a number are a product of unknowns, not a unit or a word: `6xy`, but not `6 lb`.

    Words have at least three letters and a vowel, or a capital as `CDs`. Directly after the number, only known units
    have fewer than four letters.
    """
    if not letters.isascii() or is_unit(letters) or letters.lower() in _NO_FACTORS:
        return False
    if letters[0].isupper() and not attached:
        return False
    if len(letters) < 3 or is_product(letters):
        return True
    return attached and (len(letters) == 3 or list(letters) == sorted(set(letters)))


def is_product(letters: str) -> bool:
    """Return True for a run of letters that is no word: without a vowel, or all from both ends of the alphabet."""
    lower = letters.lower()
    return not _VOWELS.intersection(lower) or (
        _FIRST_AND_LAST.issuperset(letters) and len(set(letters)) == len(letters) and not is_unit(letters)
    )


_VOWELS = frozenset("aeiou")
_FIRST_AND_LAST = frozenset("abcdxyz")
_NO_FACTORS = frozenset(
    word
    for words in (
        "st nd rd th is of to in at by no we us it on as an if so",
        "do he be my up or me am pm rs ok vs",
        "sq cu sky try dry fry cry gym spy fly shy my by why tv tvs dvd dvds ct pkg pkgs ppl",
    )
    for word in words.split()
)


def parse_unit(text: str) -> Unit | None:
    """Return a unit as a mapping of names to exponents, or None if the text is no unit.

    `km/h` and `km h^{-1}` are both km to the power 1 and h to the power -1. A price per hour is a price.
    """
    unit: Unit = {}
    name, sign, power, place = "", 1, 1, 0
    text = _OF.sub("", text)
    while place < len(text):
        part = _PART.match(text, place)
        if part is None:
            return None
        place = part.end()
        word = f"{part['clock'][0].lower()}m" if part["clock"] else part["name"]
        if part["over"]:
            if unit.keys() & _MONEY:
                break
            sign = -1
        elif part["raised"] and name:
            unit[name] *= int(part["power"] or _POWERS[part["raised"]])
        elif word in _POWERS and place < len(text) and not word.endswith("ed"):
            power = _POWERS[word]
        elif word in _POWERS and name:
            unit[name] *= _POWERS[word]
        elif word in _COMPOUNDS:
            unit |= _COMPOUNDS[word]
        elif word:
            name = UNITS.get(word) or UNITS.get(word.lower(), word)
            if "°" in unit and name in _TEMPERATURES:
                del unit["°"]
            unit[name] = sign * power
            power = 1
        elif part["raised"]:
            return None
    return unit or None


def units_differ(answer: Unit | None, true: Unit | None) -> bool:
    """Return True if two units differ. An unknown name differs only from other letters and from known short names."""
    if not answer or not true or answer == true:
        return False
    names = list(answer), list(true)
    if all(name in UNITS for name in (*names[0], *names[1])):
        degrees = {"°": 1} in (answer, true) and not _TEMPERATURES.isdisjoint((*answer, *true))
        return not degrees
    return len(names[0]) == len(names[1]) and any(map(_names_differ, *names))


def _names_differ(answer: str, true: str) -> bool:
    if answer == true:
        return False
    if answer in UNITS and true in UNITS:
        return True
    return min(len(answer), len(true)) == 1
