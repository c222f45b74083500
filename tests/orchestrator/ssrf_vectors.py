"""Hosts that must never be called, in every spelling, and public ones that may."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

FORBIDDEN_V4 = (
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1", "127.0.0.2",
    "127.255.255.254", "169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.170",
    "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.7",
    "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
)  # fmt: skip
FORBIDDEN_V6 = (
    "::", "::1", "::2", "::ffff:0:0", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "100::1", "100:0:0:1::1", "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::",
    "2002:a9fe:a9fe::", "3fff::1", "3fff:fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fdff::1",
    "fe80::1", "fe80::a9fe:a9fe", "febf::1", "fec0::1", "ff01::1", "ff02::1", "ff0e::1", "ffff::1",
)  # fmt: skip
PUBLIC = (
    "1.1.1.1", "8.8.8.8", "9.9.9.9", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.255.255.255", "128.0.0.1",
    "169.253.255.255", "172.15.255.255", "172.32.0.1", "192.167.255.255", "192.169.0.1", "198.17.255.255",
    "198.20.0.1", "223.255.255.255", "[2606:4700:4700::1111]", "[2001:4860:4860::8888]", "[2a00:1450:4001::1]",
    "[2620:fe::fe]", "[2001:200::1]", "[3ffe::1]",
)  # fmt: skip


def spellings_v4(text: str) -> Iterator[str]:
    """The forms in which C libraries, URL parsers and people write an IPv4 address."""
    number = int(IPv4Address(text))
    a, b, c, d = text.split(".")
    rest3, rest2 = number & 0xFFFFFF, number & 0xFFFF
    yield from (text, f"{text}.", f"{text}..", str(number), hex(number), f"0X{number:X}", f"0{number:o}", f"{number}.")
    yield from (f"{a}.{rest3}", f"{a}.{b}.{rest2}", f"{a}.0x{rest3:x}", f"0x{int(a):x}.{rest3}", f"0{int(a):o}.{rest3}")
    yield ".".join(f"0{int(part):o}" for part in (a, b, c, d))
    yield ".".join(f"0x{int(part):x}" for part in (a, b, c, d))
    yield ".".join(part.zfill(3) for part in (a, b, c, d))
    yield f"0x{int(a):x}.{b}.0{int(c):o}.{d}"
    yield "".join(chr(ord(char) + 0xFEE0) for char in text)  # fullwidth
    yield "".join(_circled(char) for char in text)
    yield from (text.replace(".", dot) for dot in "\u3002\uff0e\uff61")
    yield text.replace(".", "%2e")
    yield "".join(f"%{ord(char):02x}" for char in text)
    yield from (f"user@{text}", f"public.example@{text}", f"{text}\\@public.example", f"{text}#@public.example")
    yield from (f"{text}\t", f" {text}", f"{text}\n", f"{text}%00", f"{text}\x00.public.example")
    high, low = f"{number >> 16:x}", f"{rest2:x}"
    for prefix in ("::ffff:", "::ffff:0:", "::", "64:ff9b::", "64:ff9b:1::", "fe80::5efe:"):
        yield from (f"[{prefix}{text}]", f"[{prefix}{high}:{low}]")
    yield from (f"[0:0:0:0:0:FFFF:{high}:{low}]", f"[2002:{high}:{low}::]", f"[2002:{high}:{low}::1]")
    yield f"[2001:0:0:0:0:0:{(number ^ 0xFFFFFFFF) >> 16:x}:{rest2 ^ 0xFFFF:x}]"  # Teredo


def spellings_v6(text: str) -> Iterator[str]:
    """The forms of an IPv6 address."""
    yield from (f"[{text}]", f"[{text.upper()}]", f"[{IPv6Address(text).exploded}]", text)
    yield from (f"[{text}%eth0]", f"[{text}%25eth0]", f"[{text}%1]", f"[{text}].", f"user@[{text}]")


def forbidden_hosts() -> list[str]:
    """All of them, each once."""
    hosts = [host for text in FORBIDDEN_V4 for host in spellings_v4(text)]
    hosts += [host for text in FORBIDDEN_V6 for host in spellings_v6(text)]
    return list(dict.fromkeys(hosts))


def _circled(char: str) -> str:
    if char == ".":
        return "."
    return "\u24ea" if char == "0" else chr(ord(char) - ord("1") + 0x2460)
