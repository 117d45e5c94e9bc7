"""Weather by city: the decorators of the SDK, with a typed result."""

from typing import Annotated, Literal

from mcp.server import MCPServer
from pydantic import BaseModel, Field

mcp = MCPServer("weather", instructions="Ask for one city at a time.")
DEGREES = {"paris": 21, "oslo": 9}


class Weather(BaseModel):
    city: str
    degrees: float
    unit: str


@mcp.tool()
async def get_weather(
    city: Annotated[str, Field(description="Name of the city.")],
    unit: Annotated[Literal["C", "F"], Field(description="Unit of the temperature.")] = "C",
) -> Weather:
    """Get the temperature of a city."""
    degrees = DEGREES[city.lower()]
    return Weather(city=city, degrees=degrees if unit == "C" else degrees * 9 / 5 + 32, unit=unit)


if __name__ == "__main__":
    mcp.run(transport="stdio")
