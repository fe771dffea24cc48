// Browsers refuse workers on file://, and the search runs in one: there, an iframe takes the worker's place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      window.addEventListener("message", (event) => {
        if (event.source === this.frame.contentWindow) this.receive(event.data);
      });
      const page = this.frame.contentDocument;
      const scripts = ["<script>postMessage = parent.postMessage.bind(parent)</" + "script>"];
      scripts.push(`<script src="${url}" onload="postMessage('ready', '*')"></` + "script>");
      page.open();
      page.write(scripts.join(""));
      page.close();
    }
    receive(data) {
      if (data !== "ready") {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
        return;
      }
      const waiting = this.waiting;
      this.waiting = null;
      waiting.forEach((each) => this.postMessage(each));
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
