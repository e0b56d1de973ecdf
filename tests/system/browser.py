# SPDX-License-Identifier: Apache-2.0
"""A page in headless Chromium, over its own debugging protocol on a pipe: no library, no port.

    with Page("http://127.0.0.1:14780/", width=390, height=800, dark=True) as page:
        page.wait("document.querySelectorAll('.card').length == 3")
        page.click("#pause")
        page.screenshot("phone.png")

Every wait has a deadline. What the page logs as an error, or throws, is in `page.complaints`.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from yuebing import DEADLINE_S, Failed, Skipped

PATIENCE_S = 2 * DEADLINE_S  # A browser is large, and machines are busy.


class Page:
    def __init__(self, url, width=1280, height=900, dark=False):
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            raise Skipped("there is no chromium here")
        self.url, self.size, self.dark = url, (width, height), dark
        self.number, self.rest, self.complaints = 0, b"", []
        self.folder = tempfile.mkdtemp(prefix="yuebing-page-")
        to_read, self.to = os.pipe()
        self.source, from_write = os.pipe()

        def wires():  # The browser reads from 3 and writes to 4.
            high = [os.dup2(to_read, 20), os.dup2(from_write, 21)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=wires, close_fds=False)
        os.close(to_read)
        os.close(from_write)

    def __enter__(self):
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.source)
        shutil.rmtree(self.folder, ignore_errors=True)

    def open(self):
        self.session = None
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"]
                      if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"],
                                flatten=True)["sessionId"]
        width, height = self.size
        for method, how in (
                ("Page.enable", {}), ("Runtime.enable", {}), ("Log.enable", {}),
                ("Emulation.setDeviceMetricsOverride",
                 {"width": width, "height": height, "deviceScaleFactor": 1,
                  "mobile": width < 600}),
                ("Emulation.setEmulatedMedia",
                 {"features": [{"name": "prefers-color-scheme",
                                "value": "dark" if self.dark else "light"}]}),
                ("Page.navigate", {"url": self.url})):
            self.ask(method, **how)

    # ---- the protocol: JSON, a zero byte behind each -----------------------------------------

    def hear(self, until):
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.source], [], [], left)[0]:
                raise Failed("the browser does not answer")
            piece = os.read(self.source, 1 << 20)
            if not piece:
                raise Failed("the browser has ended")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        told = json.loads(line)
        how = told.get("params", {})
        if told.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(how["exceptionDetails"])[:600])
        if told.get("method") == "Log.entryAdded" and how["entry"]["level"] == "error":
            self.complaints.append(how["entry"]["text"] + " " + how["entry"].get("url", ""))
        return told

    def ask(self, method, **how):
        self.number += 1
        message = {"id": self.number, "method": method, "params": how}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE_S
        while True:
            told = self.hear(until)
            if told.get("id") == self.number:
                if "error" in told:
                    raise Failed(f"{method}: {told['error']}")
                return told["result"]

    # ---- what tests do -------------------------------------------------------------------------

    def value(self, script):
        told = self.ask("Runtime.evaluate", expression=script, returnByValue=True,
                        awaitPromise=True)
        if "exceptionDetails" in told:
            raise Failed(f"{script}: {json.dumps(told['exceptionDetails'])[:600]}")
        return told["result"].get("value")

    def wait(self, script):
        """Until the script is true; returns what it is then."""
        until = time.monotonic() + PATIENCE_S
        while True:
            value = self.value(
                f"(() => {{ try {{ return {script} }} catch {{ return false }} }})()")
            if value:
                return value
            if time.monotonic() > until:
                raise Failed(f"never true: {script}; the page says: "
                             f"{self.value('document.body.innerText')[:1500]}; {self.complaints}")
            self.value("new Promise(then => setTimeout(then, 100))")

    def click(self, selector):
        """With the mouse, in the middle of what is there: what covers it gets the click."""
        there = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{there}.scrollIntoView({{block: 'center'}})")
        x, y = self.value(f"(r => [r.x + r.width / 2, r.y + r.height / 2])"
                          f"({there}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path):
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": self.size[0], "height": size["height"],
                              "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
