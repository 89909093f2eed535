const root=document.documentElement,pick=lang=>{root.lang=lang};
pick((navigator.language||"en").toLowerCase().startsWith("zh")?"zh-CN":"en");
document.querySelector("button").addEventListener("click",()=>pick(root.lang==="en"?"zh-CN":"en"));
