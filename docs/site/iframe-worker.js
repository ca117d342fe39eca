// Search in pages that are opened from a folder: a browser starts no worker there, so a hidden frame works in its stead.
// The theme looks for it by this name.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.#ready = new Promise((loaded, failed) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src: url, onload: loaded, onerror: failed });
        inside.document.body.append(script);
      });
    }

    async postMessage(data) {
      await this.#ready;
      this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.#frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
