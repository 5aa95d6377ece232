"""The API reference: doxygen's settings, its run, and the names that it documents."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

PROJECT = re.compile(r"project\(gantry VERSION (\S+).*?DESCRIPTION \"([^\"]+)\"", re.DOTALL)
SCOPES = {"namespace", "class", "struct", "union", "concept"}


def project_of(root):
    """The version and the description of the project."""
    return PROJECT.search((root / "CMakeLists.txt").read_text(encoding="utf-8")).groups()


def version_of(doxygen):
    """The output of `doxygen --version`; empty if there is no such program."""
    try:
        return subprocess.run([doxygen, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def settings(root, output):
    """docs/doxygen/Doxyfile.in for the sources below `root`."""
    version, description = project_of(root)
    values = {"PROJECT_VERSION": version, "PROJECT_DESCRIPTION": description, "PROJECT_SOURCE_DIR": root.as_posix(),
              "OUTPUT_DIRECTORY": output.as_posix(), "Python3_EXECUTABLE": sys.executable}
    text = (root / "docs/doxygen/Doxyfile.in").read_text(encoding="utf-8")
    return re.sub(r"@(\w+)@", lambda match: values[match[1]], text)


def run(doxygen, text):
    """Runs doxygen with the settings `text`; returns its exit code and its warnings."""
    done = subprocess.run([doxygen, "-"], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def framed(text, output, header, footer):
    """The settings `text` for pages between `header` and `footer`, with a file of all names."""
    output.mkdir(parents=True, exist_ok=True)
    (output / "header.html").write_text(header, encoding="utf-8")
    (output / "footer.html").write_text(footer, encoding="utf-8")
    return (f'{text}\nHTML_HEADER = "{output}/header.html"\nHTML_FOOTER = "{output}/footer.html"\n'
            f'GENERATE_TAGFILE = "{output}/names.xml"\n')


def read_names(path):
    """Qualified name → (place below the site, kind) of the names in doxygen's tag file; the first overload counts."""
    names = {}
    for compound in ElementTree.parse(path).getroot().iter("compound"):
        kind = compound.get("kind")
        if kind not in SCOPES:
            continue
        scope = compound.findtext("name")
        names.setdefault(scope, (f'api/{compound.findtext("filename")}', kind))
        for member in compound.iter("member"):
            place = f'api/{member.findtext("anchorfile")}#{member.findtext("anchor")}'
            names.setdefault(f'{scope}::{member.findtext("name")}', (place, member.get("kind")))
    return {name: (place, kind) for name, (place, kind) in names.items() if name.startswith("gantry")}



def mend_links(folder, anchors_of):
    """Takes the anchor from each link to a member that doxygen does not describe, and the link where it leads to its own page.

    Doxygen refers to the private members of a class, though no page has them.
    """
    pages = {path.name: anchors_of(path) for path in folder.glob("*.html")}
    own = re.compile(r'<a href="#([^"]+)">[^<]*</a> &#124;\n?')
    other = re.compile(r'href="([^"#]+)#([^"]+)"')
    for path in folder.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        mended = own.sub(lambda match, name=path.name: match[0] if match[1] in pages[name] else "", text)
        mended = other.sub(lambda match: match[0] if match[1] not in pages or match[2] in pages[match[1]] else f'href="{match[1]}"', mended)
        if mended != text:
            path.write_text(mended, encoding="utf-8")
