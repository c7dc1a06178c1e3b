"""Reads Gradus's public headers: prototypes, structs, enums, callbacks, constants, and the comments above them.

Standard library alone. The headers follow docs/api-rules.md, so a few regular expressions read all of them; what they cannot
read is an error and not left out. tools/gen-python writes the Python package's tables from what is read here.
"""
import hashlib
import pathlib
import re

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
MARK = re.compile(r"\x01(\d+)\x02")  # stands for a comment
ITEM = re.compile(
    MARK.pattern
    + r"|typedef struct (?P<struct>\w+) \{(?P<members>[^{}]*)\} (?P=struct);"
    + r"|typedef struct (?P<opaque>\w+) \w+;"
    + r"|typedef enum (?P<enum>\w+) \{(?P<constants>[^{}]*)\} (?P=enum);"
    + r"|typedef (?P<result>[^;{}()]*)\(\*(?P<callback>\w+)\)\((?P<arguments>[^;]*)\);"
    + r"|GD_API (?P<prototype>[^;]*);", re.S)
DECLARATOR = re.compile(r"(?P<stars>[* ]*)(?P<const>const )?(?P<more>[* ]*)(?P<name>\w+)\s*(?P<arrays>(\[\w+\]\s*)*)"
                        r"(?:GD_DEFAULT\((?P<default>.*)\))?$", re.S)


class Type:
    """`const gd_tensor *const *` is base "gd_tensor", stars 2, const True (of what is pointed to)."""

    def __init__(self, base, stars=0, const=False, array=None, function=False):
        self.base, self.stars, self.const, self.array, self.function = base, stars, const, array, function

    def __repr__(self):
        return f"{'const ' if self.const else ''}{self.base}{'*' * self.stars}{'' if self.array is None else f'[{self.array}]'}"


class Named:
    """A parameter or a member."""

    def __init__(self, name, type, default=None, doc=""):
        self.name, self.type, self.default, self.doc = name, type, default, doc


class Function:
    def __init__(self, name, result, parameters, doc, header):
        self.name, self.result, self.parameters, self.doc, self.header = name, result, parameters, doc, header


class Struct:
    def __init__(self, name, members, doc):
        self.name, self.members, self.doc = name, members, doc
        self.sized = bool(members) and members[0].name == "size" and members[0].default is not None


class Api:
    """All that the headers declare."""

    def __init__(self):
        self.functions, self.structs, self.opaque, self.enums, self.callbacks = {}, {}, [], {}, {}
        self.constants = {"NAN": float("nan"), "INFINITY": float("inf"), "true": True, "false": False, "NULL": None,
                          "INT64_MAX": 2 ** 63 - 1, "SIZE_MAX": 2 ** 64 - 1, "INT64_MIN": -2 ** 63}
        self.macros = {}  # name -> body
        self.hash = ""


def headers(include):
    return sorted(pathlib.Path(include, "gradus").glob("*.h"))


def api_hash(include):
    """What gd_api_hash() of a library that was compiled with these headers gives (cmake/ApiHash.cmake)."""
    digests = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in headers(include))
    return hashlib.sha256(digests.encode()).hexdigest()


def as_c(text):
    """(`text` without its directives and what is for C++, [(macro, body)])"""
    kept, macros, stack = [], [], []
    for line in text.replace("\\\n", " ").split("\n"):
        word = re.match(r"#\s*(\w+)\s*(.*)", line)
        if not word:
            kept.append(line if all(stack) else "")
            continue
        kept.append("")
        directive, rest = word.groups()
        if directive in ("ifdef", "if", "ifndef"):
            stack.append("__cplusplus" not in rest or directive == "ifndef")
        elif directive in ("else", "elif"):
            stack[-1] = not stack[-1]
        elif directive == "endif":
            stack.pop()
        elif directive == "define" and all(stack):
            macro = re.match(r"(\w+)(\([^)]*\))?\s*(.*)", rest)
            macros.append((macro.group(1), COMMENT.sub("", macro.group(3)).strip()))
    return "\n".join(kept), macros


def plain(comment):
    """A comment's text."""
    if comment.startswith("//"):
        return comment[2:].strip()
    lines = comment[2:-2].strip().split("\n")
    return "\n".join(re.sub(r"^\s*\* ?", "", line).rstrip() if i else line.rstrip() for i, line in enumerate(lines))


def split(text):
    """At the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def declaration(text):
    """[(name, Type, default)] of `int64_t *const *a, b GD_DEFAULT(1)`."""
    text = " ".join(text.split())
    function = re.match(r"(.*?)\(\*(\w+)\)\(.*\)$", text)
    if function:
        return [(function.group(2), Type("void", 1, function=True), None)]
    head = re.match(r"(const )?(?:struct )?(unsigned char|\w+) ?(.*)$", text)
    if not head:
        raise ValueError(f"cannot read {text!r}")
    const, base, rest = head.groups()
    found = []
    for part in split(rest):
        match = DECLARATOR.match(part)
        if not match:
            raise ValueError(f"cannot read {text!r}")
        stars = (match["stars"] + match["more"]).count("*")
        arrays = re.findall(r"\[(\w+)\]", match["arrays"] or "")
        found.append((match["name"], Type(base, stars, bool(const or match["const"]), arrays[0] if arrays else None), match["default"]))
    return found


def parameter(text):
    text = " ".join(text.split())
    array = re.match(r"(.*\w)\[\w*\]$", text)
    if array:
        (name, type, _), = declaration(array.group(1))
        return Named(name, Type(type.base, type.stars + 1, type.const))
    (name, type, _), = declaration(text)
    return Named(name, type)


def value(api, text):
    """What a default or a constant is: a number, or the text where it is none."""
    text = text.strip()
    if text.startswith("sizeof"):
        return None
    try:
        return eval(re.sub(r"(?<=\d)[fFuUlL]+\b|\((?:size_t|u?int64_t)\)", "", text), {"__builtins__": {}}, api.constants)
    except (SyntaxError, NameError, TypeError):
        return text


def read_struct(api, name, body, doc, comments):
    members = []
    for piece in re.split(r"(?<=;)", body):  # a comment on the line of a member stands behind its semicolon
        first = re.match(r"[ \t]*" + MARK.pattern, piece)
        if first and members:
            members[-1].doc = plain(comments[int(first.group(1))])
        above = [plain(comments[int(i)]) for i in MARK.findall(piece[first.end():] if first and members else piece)]
        text = MARK.sub("", piece).strip().rstrip(";")
        for member, type, default in declaration(text) if text else []:
            members.append(Named(member, type, None if default is None else value(api, default), " ".join(above)))
            if default is not None and default.startswith("sizeof"):
                members[-1].default = "sizeof"
    api.structs[name] = Struct(name, members, doc)


def read_enum(api, name, body):
    number, names = -1, {}
    for part in split(MARK.sub("", body)):
        constant, _, given = (side.strip() for side in part.partition("="))
        number = int(given, 0) if given else number + 1
        names[constant] = api.constants[constant] = number
    api.enums[name] = names


def read_prototype(api, text, doc, header):
    match = re.match(r"(.*?)\(?\b(\w+)\)?\((.*)\)\s*(?:GD_PRINTF\(.*\))?$", " ".join(MARK.sub("", text).split()), re.S)
    if not match:
        raise ValueError(f"{header}: cannot read {text!r}")
    result, name, arguments = match.groups()
    (_, type, _), = declaration(result.strip() + " result")
    parameters = [] if arguments.strip() == "void" else [parameter(a) for a in split(arguments)]
    api.functions[name] = Function(name, type, parameters, doc, header)


def read_header(api, path):
    text, macros = as_c(path.read_text(encoding="utf-8"))
    for name, body in macros:
        api.macros[name] = body
        constant = value(api, body) if body else None
        if isinstance(constant, (int, float)):
            api.constants.setdefault(name, constant)
    comments = []

    def mark(match):
        comments.append(match.group())
        return f"\x01{len(comments) - 1}\x02"

    text = COMMENT.sub(mark, text)
    doc, last, end = "", None, 0
    for item in ITEM.finditer(text):
        if item.group(1) is not None:
            comment = plain(comments[int(item.group(1))])
            if last and "\n" not in text[end:item.start()]:
                last.doc = comment  # behind a prototype, on its line
            else:
                doc = "" if comment.startswith("----") else comment
            continue
        last, end = None, item.end()
        if item["struct"]:
            read_struct(api, item["struct"], item["members"], doc, comments)
        elif item["opaque"]:
            api.opaque.append(item["opaque"])
        elif item["enum"]:
            read_enum(api, item["enum"], item["constants"])
        elif item["callback"]:
            api.callbacks[item["callback"]] = (item["result"].strip(), item["arguments"], doc)
        else:
            read_prototype(api, item["prototype"], doc, path.name)
            last = api.functions[list(api.functions)[-1]]
    left = re.sub(r"extern \"C\" \{|\}|\s", "", ITEM.sub("", text))
    if left:
        raise ValueError(f"{path}: cannot read {left[:200]!r}")


def read(include):
    """The Api of the folder that has gradus/*.h. A header is read after those it includes."""
    api, done = Api(), set()

    def visit(path):
        if path in done:
            return
        done.add(path)
        for name in re.findall(r"#include <gradus/(\w+\.h)>", path.read_text(encoding="utf-8")):
            visit(path.parent / name)
        if path.name != "gradus.h":
            read_header(api, path)

    for path in headers(include):
        visit(path)
    api.hash = api_hash(include)
    return api
