"""Manual pages as Markdown. The pages are those that `margay man` writes, so a few macros are all there are."""

from __future__ import annotations

import re

FONTS = re.compile(r"\\f([BIR])")


def _escaped(text: str) -> str:
    text = re.sub(r"([*_\[\]])", r"\\\1", text.replace("&", "&amp;"))
    return text.replace("<", "&lt;").replace(">", "&gt;")


def _text(line: str, literal: bool = False) -> str:
    """A line of text: fonts become Markdown's, what Markdown would take as markup is kept as it is."""
    line = line.replace(r"\*(Aq", "'").replace(r"\(aq", "'").replace(r"\-", "-").replace(r"\&", "").replace(r"\e", "\\")
    if literal:
        return FONTS.sub("", line)
    out, open_mark = "", ""
    for at, piece in enumerate(FONTS.split(line)):
        if at % 2:
            out, open_mark = out + open_mark, {"B": "**", "I": "*", "R": ""}[piece]
            out += open_mark
        else:
            # Code keeps its characters.
            parts = piece.split("`")
            out += "`".join(part if i % 2 else _escaped(part) for i, part in enumerate(parts))
    return out + open_mark


def name_of(page: str) -> str:
    """The command's name, as it is typed: the first bold words of the synopsis."""
    found = re.search(r"^\.SH SYNOPSIS\n\\fB(.+?)\\fR", page, flags=re.MULTILINE)
    return _text(found[1], literal=True) if found else "margay"


def to_markdown(page: str, names: dict[str, str]) -> str:
    """The page as Markdown. ``names`` are those of all commands by the names of their pages."""

    def linked(text: str) -> str:
        """Names of other pages as links: margay-format(1)."""
        return re.sub(r"(margay[a-z-]*)\(1\)", lambda found: f"[{names[found[1]]}]({found[1]}.md)", text)

    out = [f"# {name_of(page)}", ""]
    section, lead, expects_term, bullet = "", "", False, False
    for line in page.splitlines():
        macro = line.split(" ")[0] if line.startswith(".") else ""
        if macro == ".SH":
            section, lead, expects_term = line[4:], "", False
            # The heading has the name, and the description what it does.
            out += [] if section == "NAME" else ["", f"## {section.capitalize()}", ""]
        elif macro == ".TP":
            expects_term, lead = True, ""
        elif macro == ".IP":
            bullet = True
        elif macro in (".PP", ".br", ".RS", ".RE"):
            out.append("")
        elif macro or section == "NAME" or not section:
            continue
        elif expects_term:
            out += ["", linked(_text(line))]
            expects_term, lead = False, ":   "
        else:
            out.append(f"{lead}{'- ' if bullet else ''}{linked(_text(line))}".rstrip())
            bullet = False
            lead = "    " if lead else ""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip() + "\n"
